"""For staff: draft, import and check easyconfigs and site files."""
