// What axe-core finds in the theme: elements without a name of their own, and boxes that scroll but no key reaches.
// The theme takes `tabindex` away again where no mouse is, so it is set whenever it is gone.
const BOXES =
  '.md-typeset__scrollwrap, pre > code, .md-search__scrollwrap, .md-typeset p:has(> img[src$="architecture.svg"])'
function reachable() {
  document.querySelector('.md-search').setAttribute('aria-label', 'Search')
  document.querySelectorAll('.md-code__nav').forEach((nav, n) => nav.setAttribute('aria-label', `Code ${n + 1}`))
  for (const box of document.querySelectorAll(BOXES))
    if (box.getAttribute('tabindex') !== '0') box.tabIndex = 0
}
reachable()
new MutationObserver(reachable).observe(document.body, {subtree: true, childList: true, attributeFilter: ['tabindex']})
