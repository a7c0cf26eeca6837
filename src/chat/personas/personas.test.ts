/** Personas from the configuration and from a real folder, listed, found and read again. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { PersonaSection } from '../../config/config.ts';
import { type LogLine, memoryLog } from '../../../test/support/memory-log.ts';
import type { CharacterQuery } from './character.ts';
import { openPersonas, type Personas } from './personas.ts';

const STARTED_AT = '2026-11-21T12:00:00.000Z';
const SOCRATES = `---
slug: socrates
name: Socrates
description: Asks instead of answering
tags: [philosophy, history]
categories: [Education]
model: atlas-24b
featured: true
createdAt: 2026-01-02
---

You are Socrates.

Ask one question at a time.
`;

let folder: string;
let lines: LogLine[];
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'farebox-personas-'));
});
beforeEach(async () => {
  await rm(folder, { recursive: true, force: true });
  folder = await mkdtemp(join(tmpdir(), 'farebox-personas-'));
  lines = [];
});
after(() => rm(folder, { recursive: true, force: true }));

async function open(list: readonly unknown[] = []): Promise<Personas> {
  const sections = list.map((section) => PersonaSection.parse(section));
  return await openPersonas({
    list: sections,
    folder,
    log: memoryLog(lines),
    startedAt: STARTED_AT,
  });
}

test('a Markdown file contains fields and prompt, and the character omits the prompt', async () => {
  await writeFile(join(folder, 'socrates.md'), SOCRATES);
  const personas = await open();
  const persona = personas.get('socrates');
  assert.equal(persona?.prompt, 'You are Socrates.\n\nAsk one question at a time.');
  const { updatedAt, ...character } = personas.list().data[0]!;
  assert.ok(!Number.isNaN(Date.parse(updatedAt)));
  assert.deepEqual(character, {
    id: persona?.character.id,
    slug: 'socrates',
    name: 'Socrates',
    description: 'Asks instead of answering',
    tags: ['philosophy', 'history'],
    adult: false,
    author: '',
    createdAt: '2026-01-02T00:00:00.000Z',
    featured: true,
    photoUrl: null,
    shareUrl: null,
    webEnabled: true,
    modelId: 'atlas-24b',
    stats: { averageRating: 0, imports: 0, ratingCount: 0, ratingSum: 0, userRating: null },
  });
  assert.match(character.id, /^[\da-f]{8}-[\da-f]{4}-5[\da-f]{3}-a[\da-f]{3}-[\da-f]{12}$/);
});

test('YAML files and Markdown without front matter work; the slug defaults to the file name', async () => {
  await writeFile(join(folder, 'Poet.yaml'), 'name: The Poet\nprompt: You rhyme.\nadult: true\n');
  await writeFile(join(folder, 'plain.md'), 'You are plain.');
  await writeFile(join(folder, 'notes.txt'), 'ignored');
  const personas = await open();
  assert.deepEqual(
    personas.list({ sortBy: 'name' }).data.map(({ slug, name }) => [slug, name]),
    [
      ['plain', 'plain'],
      ['poet', 'The Poet'],
    ],
  );
  assert.equal(personas.get('poet')?.character.adult, true);
  assert.equal(personas.get('nobody'), undefined);
});

test('an invalid file is logged with its reason and does not affect others', async () => {
  await writeFile(join(folder, 'good.md'), 'Good.');
  await writeFile(join(folder, 'empty.md'), '---\nname: E\n---\n');
  await writeFile(join(folder, 'typo.yaml'), 'prompt: x\ndescripton: y\n');
  await writeFile(join(folder, 'broken.yaml'), 'a: [');
  await writeFile(join(folder, 'list.yaml'), '- a');
  const aliases = `a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]\n`;
  await writeFile(join(folder, 'laughs.yaml'), aliases);
  const personas = await open();
  assert.deepEqual(
    personas.list().data.map((one) => one.slug),
    ['good'],
  );
  assert.deepEqual(
    lines.map((line) => line.fields['file']),
    ['broken.yaml', 'empty.md', 'laughs.yaml', 'list.yaml', 'typo.yaml'],
  );
});

test('`reload()` adds new files, drops deleted ones, and keeps the last valid version of an invalid one', async () => {
  await writeFile(join(folder, 'a.md'), 'First.');
  await writeFile(join(folder, 'b.md'), 'Second.');
  const personas = await open();
  await writeFile(join(folder, 'a.md'), '---\nname: [\n---\nbroken');
  await rm(join(folder, 'b.md'));
  await writeFile(join(folder, 'c.md'), 'Third.');
  assert.equal(await personas.reload(), 2);
  assert.equal(personas.get('a')?.prompt, 'First.');
  assert.equal(personas.get('b'), undefined);
  assert.equal(personas.get('c')?.prompt, 'Third.');
  await writeFile(join(folder, 'a.md'), 'Mended.');
  await personas.reload();
  assert.equal(personas.get('a')?.prompt, 'Mended.');
});

test('a missing folder is an error at start and a warning later', async () => {
  await writeFile(join(folder, 'a.md'), 'First.');
  const personas = await open();
  await rm(folder, { recursive: true });
  assert.equal(await personas.reload(), 1);
  await assert.rejects(open(), { code: 'ENOENT' });
});

test('the configuration wins over a file of the same slug', async () => {
  await writeFile(join(folder, 'a.md'), 'From the file.');
  const personas = await open([{ slug: 'a', name: 'A', prompt: 'From the configuration.' }]);
  assert.equal(personas.get('a')?.prompt, 'From the configuration.');
  assert.equal(personas.get('a')?.character.createdAt, STARTED_AT);
  assert.equal(lines[0]?.message, 'A persona is defined twice; the first definition is used');
});

describe('the character list filters, sorts and pages', () => {
  const list = [
    {
      slug: 'ada',
      name: 'Ada',
      prompt: 'x',
      description: 'Counts',
      tags: ['Math', 'history'],
      categories: ['science'],
      createdAt: '2026-01-01',
      model: 'm1',
    },
    {
      slug: 'bob',
      name: 'Bob',
      prompt: 'x',
      tags: ['math'],
      adult: true,
      pro: true,
      createdAt: '2026-03-01',
      featured: true,
    },
    {
      slug: 'cleo',
      name: 'Cleo',
      prompt: 'x',
      author: 'Ptolemy',
      categories: ['history'],
      webEnabled: false,
      createdAt: '2026-02-01',
    },
  ];
  const table: readonly (readonly [CharacterQuery, readonly string[]])[] = [
    [{}, ['bob', 'ada', 'cleo']],
    [{ sortBy: 'name' }, ['ada', 'bob', 'cleo']],
    [{ sortBy: 'name', sortOrder: 'desc' }, ['cleo', 'bob', 'ada']],
    [{ sortBy: 'createdAt' }, ['bob', 'cleo', 'ada']],
    [{ sortBy: 'createdAt', sortOrder: 'asc' }, ['ada', 'cleo', 'bob']],
    [{ search: 'COUNT' }, ['ada']],
    [{ search: 'ptolemy cleo' }, ['cleo']],
    [{ tags: 'math' }, ['bob', 'ada']],
    [{ tags: 'math, history' }, ['ada']],
    [{ categories: 'science,history', sortBy: 'name' }, ['ada', 'cleo']],
    [{ modelId: 'm1' }, ['ada']],
    [{ isAdult: false, sortBy: 'name' }, ['ada', 'cleo']],
    [{ isPro: true }, ['bob']],
    [{ isWebEnabled: false }, ['cleo']],
    [{ sortBy: 'name', limit: 1, offset: 1 }, ['bob']],
    [{ offset: 10 }, []],
    [{ search: 'nobody' }, []],
  ];
  for (const [query, slugs] of table) {
    test(JSON.stringify(query), async () => {
      const personas = await open(list);
      assert.deepEqual(
        personas.list(query).data.map((one) => one.slug),
        slugs,
      );
    });
  }
});
