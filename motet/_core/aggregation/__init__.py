"""How uploads become one."""
