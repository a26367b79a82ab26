// Labels next to lines and points, moved apart where they would overlap.

const LINE = 15; // pixels from one label to the next
const LETTER = 6.6; // pixels, roughly

const along = (value, [low, high], pixels) => ((value - low) / (high - low)) * pixels;
const labelText = ({ text, color }) =>
  ({ text: plain(shorten(text)), font: { color, size: 12.5 }, yanchor: "middle" });

// Labels to the right of line ends, each connected by a thin line.
// ends: [{ x, y, text, color }] in axis units; the axis ranges fill `room`, in pixels.
function endLabels(ends, ranges, room) {
  if (!ends.length) return [];
  const heights = ends.map(({ y }) => along(y, ranges.y, room.height));
  const places = movedApart(heights, LINE, room.height);
  return ends.map((end, place) => ({
    ...labelText(end), x: end.x, y: end.y, xanchor: "left",
    ax: room.width - along(end.x, ranges.x, room.width) + 16, ay: heights[place] - places[place],
    arrowhead: 0, arrowwidth: 1, arrowcolor: faded(end.color, 0.45), standoff: 5,
  }));
}

// Move heights apart from the bottom up, then down again from the top if they exceed the room.
function movedApart(heights, gap, top) {
  const order = heights.map((_, place) => place).sort((a, b) => heights[a] - heights[b]);
  const moved = [...heights];
  let least = -Infinity;
  for (const place of order) {
    moved[place] = Math.max(moved[place], least);
    least = moved[place] + gap;
  }
  let most = top;
  for (const place of order.toReversed()) {
    moved[place] = Math.min(moved[place], most);
    most = moved[place] - gap;
  }
  return moved;
}

// Labels next to points, where one of four positions is free; the legend covers the rest.
function pointLabels(points, ranges, room) {
  const boxes = points.map(({ x, y }) => ({
    x: along(x, ranges.x, room.width), y: room.height - along(y, ranges.y, room.height),
  }));
  const taken = boxes.map(({ x, y }) => box(x - 6, y - 6, 12, 12));
  const inside = ({ left, right, top, bottom }) =>
    left >= 0 && right <= room.width && top >= -10 && bottom <= room.height;
  return points.flatMap((point, place) => {
    const free = labelPlaces(boxes[place], shorten(point.text).length * LETTER)
      .find((one) => inside(one.box) && !taken.some((other) => overlap(one.box, other)));
    if (!free) return [];
    taken.push(free.box);
    return [{ ...labelText(point), x: point.x, y: point.y, showarrow: false, ...free.shift }];
  });
}

// Right of, left of, below and above a point.
const labelPlaces = ({ x, y }, wide) => [
  { box: box(x + 9, y - 7, wide, 14), shift: { xshift: 9, xanchor: "left" } },
  { box: box(x - 9 - wide, y - 7, wide, 14), shift: { xshift: -9, xanchor: "right" } },
  { box: box(x - wide / 2, y + 7, wide, 14), shift: { yshift: -14, xanchor: "center" } },
  { box: box(x - wide / 2, y - 21, wide, 14), shift: { yshift: 14, xanchor: "center" } },
];

const box = (left, top, width, height) => ({ left, top, right: left + width, bottom: top + height });
const overlap = (a, b) =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

function padded(values, share = 0.06) {
  const [low, high] = extent(values);
  const room = (high - low || Math.abs(high) || 1) * share;
  return [low - room, high + room];
}

// Tick labels for positions 0, 1, ...: all of them, or none if they would be unreadable.
function nameTicks(names, most, letters = 16) {
  if (names.length > most) return { showticklabels: false, ticks: "" };
  return {
    tickvals: names.map((_, place) => place),
    ticktext: names.map((name) => plain(shorten(name, letters))),
  };
}
