#!/usr/bin/env bash
# Prints slides of the sessions in README.md: one for each goal, each item and each quiz, without its
# answer. A key leads from one to the next. It needs pandoc.
#
#     course/slides.sh >course/slides.html
set -euo pipefail

command -v pandoc >/dev/null || { echo "slides.sh: not installed: pandoc" >&2; exit 1; }
pandoc --standalone --to dzslides --slide-level 3 --metadata title="Sessions" \
    --variable header-includes='<style>section * { font-size: 34px !important; }</style>' --lua-filter <(
    cat <<'END'
function Pandoc(document)
    local slides, session = {}, nil
    local function add(blocks)
        table.insert(slides, session)
        for _, block in ipairs(blocks) do
            table.insert(slides, block.t == "Plain" and pandoc.Para(block.content) or block)
        end
    end
    for _, block in ipairs(document.blocks) do
        if block.t == "Header" then
            session = block.level == 3 and block
        elseif session and block.t == "BulletList" then
            for _, item in ipairs(block.content) do add(item) end
        elseif session then
            if block.content[#block.content].t == "Emph" then block.content:remove() end
            add({block})
        end
    end
    return pandoc.Pandoc(slides, document.meta)
end
END
) "$(dirname "$0")/README.md"
