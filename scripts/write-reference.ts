/** Writes the reference pages that are made from code. Run it after changing a schema. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { referencePage } from '../src/config/reference.ts';

const page = join(import.meta.dirname, '..', 'docs', 'reference', 'config.md');
await writeFile(page, referencePage());
