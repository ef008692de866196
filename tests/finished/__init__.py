"""Studies that have ended, made without servers, and programs run as their readers would."""
