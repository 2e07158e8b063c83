"""What an operator asks for beyond a run and a look: alerts, a plan, a diagnosis, a format's name, SQL for other engines."""
