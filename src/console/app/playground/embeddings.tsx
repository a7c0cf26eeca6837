/** The embeddings tab: compares texts in a table of cosine similarities. */
import { signal, useSignal } from '@preact/signals';
import { call } from '../api.ts';
import { countText } from '../format.ts';
import { Field, Form, ErrorMessage, useAction } from '../parts/form.tsx';
import { Empty } from '../parts/loaded.tsx';
import { jsonSamples } from '../code-samples.ts';
import type { Cost } from '../shapes.ts';
import { CodeButton, ModelSelect, costText, useModelChoice } from './parts.tsx';

interface Result {
  readonly texts: readonly string[];
  readonly cosines: readonly (readonly number[])[];
  readonly dimensions: number;
  readonly tokens: number;
  readonly cost: Partial<Cost> | undefined;
}

interface EmbeddingsResponse {
  readonly data: readonly { readonly embedding: readonly number[] }[];
  readonly usage: { readonly total_tokens: number };
  readonly cost?: Partial<Cost>;
}

const MAX_TEXTS = 12;
const lines = signal(
  'A cat sleeps on the sofa\nA kitten naps on the couch\nThe invoice is due on Friday',
);

export function Embeddings() {
  const choice = useModelChoice('embedding');
  const result = useSignal<Result | undefined>(undefined);
  const action = useAction();
  const texts = lines.value
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const body = { model: choice.model?.id ?? 'default', input: texts };
  const run = (): void => {
    void action.run(async () => {
      const response = await call<EmbeddingsResponse>('/embeddings', { method: 'POST', body });
      const { data, usage, cost } = response;
      const vectors = data.map(({ embedding }) => embedding);
      result.value = {
        texts,
        cosines: vectors.map((one) => vectors.map((other) => cosine(one, other))),
        dimensions: vectors[0]?.length ?? 0,
        tokens: usage.total_tokens,
        cost,
      };
    });
  };
  return (
    <div class="split">
      <Form submit={run}>
        <ModelSelect choice={choice} />
        <Field label="Texts, one per line" hint={`${texts.length} texts, from 2 to ${MAX_TEXTS}`}>
          {(attributes) => (
            <textarea
              {...attributes}
              rows={8}
              value={lines.value}
              onInput={(event) => (lines.value = event.currentTarget.value)}
            />
          )}
        </Field>
        <ErrorMessage error={action.error} />
        <p class="row">
          <button
            type="submit"
            class="primary"
            disabled={
              action.isRunning ||
              choice.model === undefined ||
              texts.length < 2 ||
              texts.length > MAX_TEXTS
            }
          >
            {action.isRunning ? 'Comparing…' : 'Compare'}
          </button>
          <CodeButton samples={() => jsonSamples('/embeddings', body)} />
        </p>
      </Form>
      <section aria-label="Result">
        {result.value === undefined ? (
          <Empty
            title={
              choice.model === undefined ? 'No embedding model is available' : 'Similarity of texts'
            }
          >
            <p>
              The model converts each text to a vector. A cosine of 1 means the same direction, 0
              means unrelated.
            </p>
          </Empty>
        ) : (
          <Cosines result={result.value} />
        )}
      </section>
    </div>
  );
}

function Cosines({ result: { texts, cosines, dimensions, tokens, cost } }: { result: Result }) {
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
      <p class="bill num">
        {[costText(cost), `${countText(tokens)} tokens`, `${countText(dimensions)} dimensions`]
          .filter((part) => part !== '')
          .join(' · ')}
      </p>
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
