(() => {
  'use strict';
  const find = id => document.getElementById(id);
  const form = find('filters'), words = find('q'), count = find('count'), none = find('none');
  const selects = [...form.querySelectorAll('select')];
  const also = {cuda: 'cuda nvidia gpu', rocm: 'rocm amd gpu', none: 'cpu'};
  const packages = JSON.parse(find('packages').textContent);
  const packageTexts = packages.map(lines => lines.join('\n').toLowerCase());

  const main = find('modules'), back = find('back'), title = document.title;
  const names = [...main.querySelectorAll('section')].map(node => ({
    node, id: node.dataset.name, about: node.querySelector('.about').textContent, older: node.querySelector('.older'),
  }));
  const ofNode = new Map(names.map(name => [name.node, name]));
  const modules = [...main.querySelectorAll('article')].map(node => {
    const name = ofNode.get(node.closest('section'));
    const contents = [...node.querySelectorAll('.contents > li')].map(item => item.textContent.trim());
    const facts = [...node.querySelectorAll('dl > div')].map(fact => [...fact.children].map(part => part.textContent));
    const said = facts.filter(([name]) => name !== 'architecture').map(([, text]) => text); // amd is not amd64
    const summary = node.querySelector('summary'), has = summary.querySelector('.has'), what = summary.querySelector('.what');
    return {
      node, name, contents, set: node.dataset.packages, has, first: has && has.textContent,
      details: node.querySelector('details'), summary,
      text: [summary.id, also[node.dataset.accelerator] || '', what ? what.textContent : name.about, ...contents, ...said]
        .join('\n').toLowerCase(),
    };
  });

  // a number is a version: of the word before it, else of the module, as in `sifmod search`
  const parse = text => {
    const terms = [];
    for (const word of text.toLowerCase().split(/[\s,]+/).filter(Boolean)) {
      const last = terms[terms.length - 1], both = /^([a-z].*?)[=@:]+v?([0-9].*)$/.exec(word);
      if (/^v?[0-9][a-z0-9.+]*$/.test(word)) {
        if (last && !last.version) last.version = word.replace(/^v/, '');
        else terms.push({word: '', version: word.replace(/^v/, '')});
      } else terms.push(both ? {word: both[1], version: both[2]} : {word, version: ''});
    }
    return terms;
  };
  const plain = text => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const begins = (word, or = '') => new RegExp('(^|[^a-z0-9])' + plain(word) + or);
  const ofModule = version => new RegExp('^[^\\n/]*/' + plain(version) + '(?![0-9])'); // the first line is its name
  const testOf = ({word, version}) => {
    const ends = version && plain(version) + '(?![0-9])';
    if (!version) return begins(word, '|^[^/\\n]*' + plain(word) + '[^/\\n]*/'); // a part of the module's name is enough
    if (!word) return ofModule(version);
    return new RegExp('(^|[^a-z0-9])' + plain(word) + '(?![a-z0-9])[^a-z0-9\\n]{0,3}v?' + ends);
  };
  const searchWith = tests => {
    const known = tests.map(() => new Map());
    const inSet = (number, set) => {
      if (set === undefined) return false;
      if (!known[number].has(set)) known[number].set(set, tests[number].test(packageTexts[set]));
      return known[number].get(set);
    };
    return modules.filter(one => tests.every((test, number) => test.test(one.text) || inSet(number, one.set)));
  };
  const search = terms => {
    const found = searchWith(terms.map(testOf));
    if (found.length || !terms.some(term => term.word && term.version)) return found;
    return searchWith(terms.flatMap(({word, version}) => [
      ...(word ? [begins(word)] : []), ...(version ? [ofModule(version)] : [])]));
  };

  const showHits = (one, terms) => {
    if (!one.has) return;
    const tests = terms.filter(term => term.word).map(term => begins(term.word));
    const lines = tests.length ? [...new Set([...one.contents, ...(packages[one.set] || [])])] : [];
    const hits = lines.filter(line => tests.some(test => test.test(line.toLowerCase()))).slice(0, 4);
    one.has.textContent = hits.join(', ') || one.first;
    one.has.classList.toggle('hit', hits.length > 0);
  };

  // names that have the words come before others, which have them in a description or a package
  const missed = (name, typed) => typed.filter(word => !name.id.toLowerCase().includes(word)).length;
  let shown = modules, only = null;
  const arrange = (kept, narrow, typed) => {
    const order = names.map(name => [missed(name, typed), name]).sort(([one], [other]) => one - other).map(([, name]) => name);
    if (order.some(({node}, number) => main.children[number] !== node)) main.prepend(...order.map(({node}) => node));
    for (const {node, older} of order) {
      const there = [...node.querySelectorAll('article')].filter(one => !one.hidden), folded = there.filter(one => older && older.contains(one));
      node.hidden = !there.length;
      if (!older) continue;
      older.hidden = !folded.length;
      older.firstElementChild.textContent = folded.length + ' older';
      if (narrow) older.open = Boolean(only) || folded.length === there.length;
      else if (older.dataset.opened) older.open = false;
      older.dataset.opened = narrow && older.open ? 'yes' : '';
    }
    shown = order.flatMap(({node}) => modules.filter(one => one.name.node === node && kept.has(one)));
  };
  const filter = () => {
    const terms = parse(words.value);
    const fits = one => (!only || one.name === only) && selects.every(({name, value}) => !value || one.node.dataset[name].split('\n').includes(value));
    shown = search(terms).filter(fits);
    const kept = new Set(shown), narrow = Boolean(only) || shown.length < modules.length;
    for (const one of modules) one.node.hidden = !kept.has(one);
    for (const one of shown) showHits(one, terms);
    arrange(kept, narrow, terms.map(term => term.word).filter(Boolean));
    back.hidden = !only;
    document.title = only ? only.id + ' · ' + title : title;
    none.hidden = shown.length > 0;
    count.textContent = shown.length === modules.length ? modules.length + ' modules' : shown.length + ' of ' + modules.length + ' modules';
  };
  const remember = () => {
    const state = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, '', '#' + state);
  };
  const recall = () => {
    const hash = location.hash.slice(1);
    const one = modules.find(({summary}) => summary.id === hash); // no module's name has a sign that a URL spells otherwise
    only = names.find(({id}) => id + '/' === hash) || null;
    const state = new URLSearchParams(one || only ? '' : hash);
    for (const field of [words, ...selects]) {
      field.value = state.get(field.name) || '';
      if (field.selectedIndex === -1) field.selectedIndex = 0;
    }
    filter();
    if (only) scrollTo(0, 0); // the list above it may have been left far below
    if (one) {
      if (one.name.older && one.name.older.contains(one.node)) one.name.older.open = true;
      one.details.open = true;
      one.summary.scrollIntoView();
      one.summary.focus({preventScroll: true});
    }
  };

  const copy = async (pre, button) => {
    const text = pre.textContent.replace(/\n*$/, '\n');
    let said = 'Copied';
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection().selectAllChildren(pre);
      if (!document.execCommand('copy')) said = 'Selected: press Ctrl+C';
    }
    button.textContent = said;
    count.textContent = said + ': ' + pre.dataset.what;
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  };
  // buttons and long lists are made when a module is opened: a page may hold thousands
  const fill = ({node, set}) => {
    if (node.dataset.filled) return;
    node.dataset.filled = 'yes';
    for (const pre of node.querySelectorAll('pre')) {
      const button = document.createElement('button'), box = document.createElement('div');
      button.type = 'button';
      button.textContent = 'Copy';
      button.setAttribute('aria-description', pre.dataset.what);
      button.addEventListener('click', () => copy(pre, button));
      box.className = 'copied';
      pre.replaceWith(box);
      box.append(pre, button);
    }
    if (set === undefined) return;
    const all = document.createElement('details'), title = document.createElement('summary'), list = document.createElement('ul');
    all.className = 'all';
    title.textContent = 'All ' + packages[set].length + ' packages';
    list.tabIndex = 0;
    list.append(...packages[set].map(line => Object.assign(document.createElement('li'), {textContent: line})));
    all.append(title, list);
    node.querySelector('.contents').after(all);
  };
  const byNode = new Map(modules.map(one => [one.details, one]));
  document.addEventListener('toggle', ({target}) => { if (target.open && byNode.has(target)) fill(byNode.get(target)); }, true);

  const step = (from, by) => {
    const seen = shown.filter(one => one.summary.checkVisibility());
    const next = seen[seen.findIndex(one => one.summary === from) + by];
    if (next) next.summary.focus();
    else if (by < 0) words.focus();
  };
  const escape = target => {
    const article = target.closest('article'), summary = article && article.querySelector('summary');
    if (target === words && words.value) words.value = '';
    else if (article && article.querySelector('details').open) {
      article.querySelector('details').open = false;
      summary.focus();
      return;
    } else if (target !== words) words.focus();
    filter();
    remember();
  };
  document.addEventListener('keydown', event => {
    const {target, key} = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const types = target.matches('input, select'), onModule = target.matches('article > details > summary');
    if (key === '/' && !types) words.select();
    else if (key === 'Escape') escape(target);
    else if (key === 'ArrowDown' && target === words) step(null, 1);
    else if (onModule && key === 'ArrowDown') step(target, 1);
    else if (onModule && key === 'ArrowUp') step(target, -1);
    else return;
    event.preventDefault();
  });
  form.addEventListener('input', () => { only = null; filter(); remember(); });
  form.addEventListener('submit', event => event.preventDefault());
  form.addEventListener('reset', () => setTimeout(() => { only = null; filter(); remember(); words.focus(); }));
  addEventListener('hashchange', recall);
  form.hidden = false;
  recall();
})();
