// Light or dark: the system's choice until the reader makes one, which a cookie keeps for the server to draw.

export function startTheme() {
  document.querySelector("[data-theme-toggle]")?.addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    document.cookie = `holdbeat_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  });
}
