import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  DocumentsSection,
  FetchSection,
  ContentSection,
  PersonaSection,
  PersonasSection,
  ScrapingSection,
  SearchSection,
} from './web-section.ts';

test('every section except `search` has defaults', () => {
  assert.deepEqual(FetchSection.parse({}), { allow: [], ports: [80, 443, 8080, 8443] });
  assert.equal(ScrapingSection.parse({}).maxUrls, 5);
  assert.equal(DocumentsSection.parse({}).workers, 2);
  assert.equal(ContentSection.parse({}).maxImageBytes, 25_000_000);
  assert.deepEqual(PersonasSection.parse({}), { list: [] });
});

test('`search` needs a provider and the settings of the provider', () => {
  const searxng = SearchSection.parse({ provider: 'searxng', url: 'http://127.0.0.1:8888' });
  assert.deepEqual([searxng.maxResults, searxng.safeSearch], [8, 'moderate']);
  const brave = SearchSection.parse({ provider: 'brave', apiKey: 'k' });
  assert.equal(brave.url, 'https://api.search.brave.com');
  for (const bad of [
    {},
    { provider: 'searxng' },
    { provider: 'brave' },
    { provider: 'x' },
    { provider: 'searxng', url: 'http://a.example', apikey: 'x' },
  ]) {
    assert.equal(SearchSection.safeParse(bad).success, false);
  }
});

test('networks must be CIDR, and slugs lowercase', () => {
  assert.ok(FetchSection.safeParse({ allow: ['127.0.0.0/8', '::1/128'] }).success);
  assert.ok(!FetchSection.safeParse({ allow: ['127.0.0.1'] }).success);
  for (const slug of ['', 'A', '../x', 'a b', '-a']) {
    assert.ok(!PersonaSection.safeParse({ slug, name: 'x', prompt: 'x' }).success, slug);
  }
});
