"""Where learning curves are known: `nets`, the spaces and their trials; `power_laws`, a study."""
