"""Quality: what is known of every mirror's trustworthiness, judged, kept and shown."""
