"""Steps that decide about the champion: promote, roll back, register."""
