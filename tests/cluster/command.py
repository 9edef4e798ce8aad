"""`scripts/cluster up` and `down`: the tests' own Kubernetes, for a laptop."""

from __future__ import annotations

import sys

from .node import Node, NodeError
from .programs import ProgramsError
from .sharing import start_for_a_person, stop_for_a_person


def main(words: list[str]) -> int:
    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    node = Node(tell)
    try:
        if words == ["up"]:
            start_for_a_person(node)
            print(f"export KUBECONFIG={node.kubeconfig}\nexport PATH=$PATH:{node.helm.parent}")
        elif words == ["down"]:
            stop_for_a_person(node)
        else:
            tell("usage: scripts/cluster up | down")
            return 2
    except (NodeError, ProgramsError) as error:
        tell(f"cluster: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
