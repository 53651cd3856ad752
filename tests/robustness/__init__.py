"""Kills, concurrent writers, full disks, missing permissions and vanishing files."""
