"""From a DCS to an MPCC by finite elements with switch (and jump) detection."""
