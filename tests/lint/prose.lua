-- Leaves of a Markdown page what is read as sentences: no code, no tables, no pictures. Headings and
-- items of lists get a full stop, or they would run into the next sentence.
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
    return pandoc.Str("code")
end

function Math()
    return pandoc.Str("formula")
end
