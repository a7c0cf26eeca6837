/** The script of the pages at `/docs`: old addresses, and the operations of a group. */
import 'swagger-ui-dist/swagger-ui.css';
import './reference.css';

const dark = matchMedia('(prefers-color-scheme: dark)');
const applyColours = (): void => {
  document.documentElement.classList.toggle('dark-mode', dark.matches);
};
applyColours();
dark.addEventListener('change', applyColours);

const place = document.getElementById('reference');
if (place === null) openOldAddress();
else {
  const { group = '' } = place.dataset;
  void import('./operations.ts').then(({ showGroup }) => showGroup(place, group));
}

/** `/docs#/Usage%20and%20billing/getUsage` was the address of an operation when all were on one page. */
function openOldAddress(): void {
  const [, group = ''] = /^#\/([^/]+)/.exec(location.hash) ?? [];
  const path = `/docs/${decodeURIComponent(group).toLowerCase().replaceAll(/[ _]/g, '-')}`;
  const link = [...document.querySelectorAll('nav a')].find(
    (one) => one.getAttribute('href') === path,
  );
  if (link !== undefined) location.replace(path + location.hash);
}
