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

-- A figure that `make report` writes is one word, however long its interval is.
function Inlines(inlines)
    local kept, within = pandoc.List(), false
    for _, inline in ipairs(inlines) do
        local comment = inline.t == "RawInline" and inline.text or ""
        if comment:match("^<!%-%- measured:") then
            kept:insert(pandoc.Str("FIGURE"))
            within = true
        elseif comment:match("^<!%-%- end %-%->") then
            within = false
        elseif not within then
            kept:insert(inline)
        end
    end
    return kept
end
