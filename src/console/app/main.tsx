/** Entry point of the console in the browser. */
import { render } from 'preact';
import { LocationProvider } from 'preact-iso';
import { startLive } from './live.ts';
import { Shell } from './shell.tsx';
import { applyTheme, followSystem } from './theme.ts';
import './styles/base.css';
import './styles/layout.css';
import './styles/parts.css';
import './styles/pages.css';

/** The addresses of this document; `/docs` is another one. */
const SCOPE = /^\/(?:$|\?|#|console(?:$|[/?#]))/;

applyTheme();
followSystem();
startLive();
const root = document.getElementById('app');
if (root !== null) {
  render(
    <LocationProvider scope={SCOPE}>
      <Shell />
    </LocationProvider>,
    root,
  );
}
