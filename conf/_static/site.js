// Boxes that scroll sideways can be reached by the keyboard, also after the window has changed.
const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
});
for (const box of document.querySelectorAll("pre, .table-wrapper")) observer.observe(box);

// The theme's own landmarks and captions have no name or level.
for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = "2";
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
