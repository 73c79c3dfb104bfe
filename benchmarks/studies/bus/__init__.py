"""The bus under load: what a look costs, whether a run is lost, how often git is called."""
