"""Where and how fits run: blocks of problems, the ladder of methods, devices, streams."""
