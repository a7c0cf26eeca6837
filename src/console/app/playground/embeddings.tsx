/** The embeddings tab: compares texts in a table of cosine similarities. */
import { useSignal } from '@preact/signals';
import { countText } from '../format.ts';
import { TextArea } from '../parts/form.tsx';
import { linesOf, useModelChoice } from './parts.tsx';
import { Trial } from './trial.tsx';

interface Result {
  readonly texts: readonly string[];
  readonly cosines: readonly (readonly number[])[];
  readonly dimensions: number;
  readonly tokens: number;
}

interface EmbeddingsResponse {
  readonly data: readonly { readonly embedding: readonly number[] }[];
  readonly usage: { readonly total_tokens: number };
}

const MAX_TEXTS = 12;

export function Embeddings() {
  const choice = useModelChoice('embedding');
  const lines = useSignal(
    'A cat sleeps on the sofa\nA kitten naps on the couch\nThe invoice is due on Friday',
  );
  const texts = linesOf(lines.value);
  return (
    <Trial
      kind="embeddings"
      path="/embeddings"
      choice={choice}
      body={{ input: texts }}
      summary={texts.join(', ')}
      isReady={texts.length >= 2 && texts.length <= MAX_TEXTS}
      verb="Compare"
      isRunningText="Comparing…"
      emptyTitle="Similarity of texts"
      emptyText="The model converts each text to a vector. A cosine of 1 means the same direction, 0 means unrelated."
      read={async (response) => {
        const { data, usage } = (await response.json()) as EmbeddingsResponse; // documented
        const vectors = data.map(({ embedding }) => embedding);
        return {
          texts,
          cosines: vectors.map((one) => vectors.map((other) => cosine(one, other))),
          dimensions: vectors[0]?.length ?? 0,
          tokens: usage.total_tokens,
        };
      }}
      restore={(earlier) => {
        lines.value = (earlier['input'] as readonly string[]).join('\n'); // stored by this tab
      }}
      notes={({ tokens, dimensions }) => [
        `${countText(tokens)} tokens`,
        `${countText(dimensions)} dimensions`,
      ]}
      show={(result) => <Cosines result={result} />}
      fields={
        <TextArea
          label="Texts, one per line"
          hint={`${texts.length} texts, from 2 to ${MAX_TEXTS}`}
          rows={8}
          value={lines.value}
          onInput={(value) => (lines.value = value)}
        />
      }
    />
  );
}

function Cosines({ result: { texts, cosines } }: { result: Result }) {
  return (
    <>
      <ol class="texts">
        {texts.map((text, at) => (
          <li key={at} class="text">
            {text}
          </li>
        ))}
      </ol>
      <div class="table" role="region" aria-label="Similarity" tabIndex={0}>
        <table class="cosines num">
          <thead>
            <tr>
              <td />
              {texts.map((text, at) => (
                <th key={at} scope="col" title={text}>
                  {at + 1}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {cosines.map((row, at) => (
              <tr key={at}>
                <th scope="row" title={texts[at]}>
                  {at + 1}
                </th>
                {row.map((value, place) => (
                  <td key={place} style={{ '--share': `${Math.round(Math.max(0, value) * 100)}%` }}>
                    {value.toFixed(3)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function cosine(a: readonly number[], b: readonly number[]): number {
  let dot = 0;
  let lengthA = 0;
  let lengthB = 0;
  for (const [at, value] of a.entries()) {
    const other = b[at] ?? 0;
    dot += value * other;
    lengthA += value * value;
    lengthB += other * other;
  }
  const both = Math.sqrt(lengthA * lengthB);
  return both === 0 ? 0 : dot / both;
}
