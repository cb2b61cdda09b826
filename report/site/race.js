// On the first page, a race: each row of its table gets a bar that fills in the time that an epoch
// took, and then counts the epochs that follow, until the slowest has its first. A slider beside it
// goes through the stage's steps, which the page's last list has.
'use strict'
const HEAD = 'ms an epoch'
const cells = row => [...row.cells]
const table = [...document.querySelectorAll('article table')].find(each =>
  cells(each.rows[0]).some(cell => cell.textContent === HEAD))

// Shows a step of a stage in the lane's last line: at first none.
function slider(number, lane) {
  const steps = [...document.querySelectorAll('.steps li')].filter(each => each.textContent.startsWith(number))
  const range = document.createElement('input')
  Object.assign(range, { type: 'range', max: steps.length, value: 0, ariaLabel: `steps of ${number}` })
  range.oninput = () => {
    lane.lastChild.innerHTML = steps[range.value - 1]?.innerHTML ?? ''
    range.ariaValueText = lane.lastChild.textContent
  }
  if (steps.length) lane.lastChild.before(range)
}

function runner(row, column) {
  const [name] = cells(row), ms = Number(row.cells[column].textContent.replaceAll(',', ''))
  const lane = document.createElement('div')
  lane.className = 'lane'
  lane.innerHTML = '<span></span><div><i></i></div><output></output><p></p>'
  lane.title = `${row.cells[column + 1].textContent.trim()}: ${row.cells[column].textContent.trim()} ms`
  lane.firstChild.innerHTML = name.innerHTML
  slider(name.textContent.slice(0, 2), lane)
  return { lane, ms, bar: lane.querySelector('i'), epochs: lane.querySelector('output') }
}

function race(runners, slowest, began) {
  const now = Math.min(performance.now() - began, slowest)
  for (const { ms, bar, epochs } of runners) {
    const done = Math.floor(now / ms)
    bar.style.width = `${Math.min(100, 100 * now / ms)}%`
    epochs.textContent = done ? `${done.toLocaleString('en')} epoch${done === 1 ? '' : 's'}` : ''
  }
  return now < slowest
}

if (table) {
  const column = cells(table.rows[0]).findIndex(cell => cell.textContent === HEAD)
  const runners = [...table.tBodies[0].rows].map(row => runner(row, column)).filter(({ ms }) => ms > 0)
  const place = document.createElement('section'), button = document.createElement('button')
  const slowest = Math.max(...runners.map(({ ms }) => ms))
  place.id = 'race'
  button.textContent = `Race them: ${Math.round(slowest / 1000)} s, in the times that were measured`
  place.append(button, ...runners.map(({ lane }) => lane))
  const picture = document.querySelector('article img')
  picture.closest('p, figure, a').before(place)
  let turn = 0 // of the race that runs: the button begins another
  button.onclick = () => {
    const began = performance.now(), mine = ++turn
    const go = () => { if (mine === turn && race(runners, slowest, began)) requestAnimationFrame(go) }
    go()
  }
}
