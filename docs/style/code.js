// Blocks of code: each word stays whole where lines wrap, and a button copies the block.
const WORD = /\S+|\s+/g;

function keepWordsWhole(block) {
  const texts = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) found.push(texts.currentNode);
  for (const text of found) {
    text.replaceWith(...text.data.match(WORD).map((part) => {
      if (!part.includes('-') || !part.trim()) return part;
      const word = document.createElement('span');
      word.className = 'word';
      word.textContent = part;
      return word;
    }));
  }
}

function addCopyButton(block) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'copy';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(block.querySelector('pre').textContent);
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  });
  block.append(button);
}

for (const block of document.querySelectorAll('div.highlight')) {
  keepWordsWhole(block);
  // Browsers have a clipboard over HTTPS only.
  if (navigator.clipboard) addCopyButton(block);
}
