"""Lakemill: PySpark and DuckDB as equal partners on one DuckLake."""
