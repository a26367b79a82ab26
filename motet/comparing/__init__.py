"""Methods side by side, under the same conditions."""
