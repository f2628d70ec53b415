"""What is installed: packages, units, tools, machines."""
