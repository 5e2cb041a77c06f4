"""The same model and optimizer as in minbert/, faster. Each file says which file of minbert/ it must equal."""
