/** Writes the generated reference pages. Run it after a change of settings, commands, error codes or metrics. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PAGES } from './reference/pages.ts';

for (const [path, page] of Object.entries(PAGES)) {
  await writeFile(join(import.meta.dirname, '..', path), page());
}
