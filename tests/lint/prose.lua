-- Keeps only the sentences of a Markdown page: no code, tables or pictures. Headings and list items
-- get a full stop, or they would run into the next sentence.
local function nothing()
    return {}
end

local function stop(block)
    block.content:insert(pandoc.Str("."))
    return block
end

CodeBlock, RawBlock, Table, Image = nothing, nothing, nothing, nothing
Header, Plain = stop, stop

function Code()
    return pandoc.Str("CODE")
end

function Math()
    return pandoc.Str("FORMULA")
end
