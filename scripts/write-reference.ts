/** Writes the reference pages that are made from code. Run it after changing what they describe. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PAGES } from './reference/pages.ts';

for (const [path, page] of Object.entries(PAGES)) {
  await writeFile(join(import.meta.dirname, '..', path), page());
}
