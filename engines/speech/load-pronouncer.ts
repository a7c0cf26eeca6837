/** Loads the packages with pronunciations, which take about a second and 80 MB. */
import { createRequire } from 'node:module';
import { type PronounceParts, Pronouncer } from './pronounce.ts';

interface Packages {
  'cmu-pronouncing-dictionary': { readonly dictionary: PronounceParts['dictionary'] };
  phonemize: { readonly phonemize: (text: string) => string };
  'number-to-words': PronounceParts['numbers'];
}

/** The packages of the engine must be importable. */
export function loadPronouncer(): Pronouncer {
  const require = createRequire(import.meta.url);
  // Required, because the ES module of phonemize imports JSON without the attribute that Node needs.
  const load = <Name extends keyof Packages>(name: Name) => require(name) as Packages[Name];
  const { dictionary } = load('cmu-pronouncing-dictionary');
  const { phonemize } = load('phonemize');
  const numbers = load('number-to-words');
  return new Pronouncer({ dictionary, guess: (word) => phonemize(word), numbers });
}
