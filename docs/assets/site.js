// What axe-core finds in the theme: a dialog without a name, and boxes that scroll but cannot be reached by keyboard.
// The theme takes `tabindex` away again where no mouse is, so it is set whenever it is gone.
function reachable() {
  document.querySelector('.md-search').setAttribute('aria-label', 'Search')
  for (const box of document.querySelectorAll('.md-typeset__scrollwrap, pre > code, .md-search__scrollwrap'))
    if (box.getAttribute('tabindex') !== '0') box.tabIndex = 0
}
reachable()
new MutationObserver(reachable).observe(document.body, {subtree: true, childList: true, attributeFilter: ['tabindex']})
