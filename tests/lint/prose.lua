-- Keeps only the sentences of a Markdown page: no code, tables or pictures. Headings and list items
-- get a full stop, or they would run into the next sentence. A link that leads nowhere ends pandoc
-- with status 1.
local page, dead = PANDOC_STATE.input_files[1], false
local ids = {} -- of the headings, by file

local function headings(path)
    if not ids[path] then
        ids[path] = {}
        pandoc.read(io.open(path):read("a"), "gfm"):walk {
            Header = function(header) ids[path][header.identifier] = true end,
        }
    end
    return ids[path]
end

local function check(target)
    local path, id = target:match("^([^#]*)#?(.*)$")
    path = path == "" and page or pandoc.path.join { pandoc.path.directory(page), path }
    if target:match("^%a+:") then
        return
    end
    if not io.open(path) or (id ~= "" and path:match("%.md$") and not headings(path)[id]) then
        io.stderr:write(page, ": leads nowhere: ", target, "\n")
        dead = true
    end
end

function Link(link)
    check(link.target)
end

function Image(image)
    check(image.src)
    return {}
end

function Pandoc()
    if dead then
        os.exit(1)
    end
end

local function nothing()
    return {}
end

local function stop(block)
    block.content:insert(pandoc.Str("."))
    return block
end

CodeBlock, RawBlock, Table = nothing, nothing, nothing
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
