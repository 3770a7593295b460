"""This project's losses and batch orders inside other people's trainers."""
