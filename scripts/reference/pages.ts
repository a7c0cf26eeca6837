/** All generated reference pages; `write-reference.ts` writes them and a test compares them. */
import { cliPage } from './cli-page.ts';
import { configPage } from './config-page.ts';
import { errorsPage } from './errors-page.ts';
import { metricsPage } from './metrics-page.ts';

/** Keys are paths from the root of the checkout; values return the text. */
export const PAGES: Readonly<Record<string, () => string>> = {
  'docs/reference/cli.md': cliPage,
  'docs/reference/config.md': configPage,
  'docs/reference/errors.md': errorsPage,
  'docs/reference/metrics.md': metricsPage,
};
