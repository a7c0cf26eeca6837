/** The logo and the name of the service, which lead to the welcome page. */
import { TITLE } from '../page-facts.ts';

export function Brand() {
  return (
    <a class="brand" href="/">
      <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="7" />
        <path d="M10 24V8h12M10 16h9" />
        <circle cx="22.5" cy="23" r="2.6" />
      </svg>
      {TITLE}
    </a>
  );
}
