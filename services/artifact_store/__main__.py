"""Run the artifact store: `python -m services.artifact_store`."""

from services.artifact_store.app import main

if __name__ == "__main__":
    main()
