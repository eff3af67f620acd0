// Hides the events that do not contain what is looked for.

export function startFind() {
  const form = document.querySelector("[data-find]");
  if (!form) return;
  const find = () => {
    const wanted = form.elements.find.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("[data-findable] li")) {
      row.hidden = wanted !== "" && !(row.textContent + row.innerHTML).toLowerCase().includes(wanted);
    }
  };
  form.addEventListener("input", find);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("holdbeat:fresh", find);
}
