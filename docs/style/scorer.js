// Ranks of the search: what to do comes before its details, and a page whose title has the query before others.
const RANKS = [['how-to/', 20], ['tutorial/', 10], ['troubleshooting', 10]];
const QUERY = (new URLSearchParams(location.search).get('q') ?? '').trim().toLowerCase();

// A result is [page, title, anchor, description, points, file, kind]. The search's own points are 5 to 15.
Scorer.score = ([page, title, , , points]) => points
  + (RANKS.find(([start]) => page.startsWith(start))?.[1] ?? 0)
  + (title.toLowerCase().includes(QUERY) ? 5 : 0);
