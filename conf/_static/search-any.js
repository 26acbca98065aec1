// Sphinx's search wants every word of a query on the page, so that a question in plain words finds nothing.
// From three words on, pages are ranked by the words they do have: a rare word counts for more, and so does one of a title.
if (typeof Search !== "undefined") {
  const exact = Search._performSearch;
  const TITLE = 3; // as many times as a word of the text
  const MOST = 20;

  const pages = (found) => (found === undefined ? [] : Array.isArray(found) ? found : [found]);
  const own = (table, word) => (Object.hasOwn(table, word) ? pages(table[word]) : []);

  const ranked = (words) => {
    const { docnames, filenames, titles, terms, titleterms } = Search._index;
    const scores = new Map();
    for (const word of words) {
      const [texts, heads] = [own(terms, word), own(titleterms, word)];
      const all = new Set([...texts, ...heads]);
      const weight = Math.log((docnames.length + 1) / (all.size + 0.5));
      for (const page of all) scores.set(page, (scores.get(page) ?? 0) + weight * (heads.includes(page) ? TITLE : 1));
    }
    const results = [...scores].map(([page, score]) => [docnames[page], titles[page], "", null, score, filenames[page], "text"]);
    results.sort((a, b) => a[4] - b[4] || (a[0] < b[0] ? 1 : -1)); // Sphinx shows the last one first
    return results.slice(-MOST);
  };

  Search._performSearch = (query, searched, excluded, ...rest) =>
    searched.size < 3 || excluded.size ? exact(query, searched, excluded, ...rest) : ranked(searched);
}
