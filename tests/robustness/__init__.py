"""Kills, concurrent writers and full disks."""
