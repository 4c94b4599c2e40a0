"""Mathematical programs with complementarity constraints and their solution; nothing about mechanics in here."""
