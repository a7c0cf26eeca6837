/** The rerank tab: orders texts by their relevance to a query. */
import { useSignal } from '@preact/signals';
import { TextArea, TextField } from '../parts/form.tsx';
import { textIn } from '../request-history.ts';
import { linesOf, useModelChoice } from './parts.tsx';
import { Trial } from './trial.tsx';

interface RerankResponse {
  readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
}

interface Ranked {
  readonly text: string;
  readonly score: number;
}

export function Rerank() {
  const choice = useModelChoice('rerank');
  const query = useSignal('How do I pay?');
  const lines = useSignal(
    'Top up the balance by card\nThe server runs on Linux\nCallers pay with USDC from a wallet',
  );
  const documents = linesOf(lines.value);
  return (
    <Trial
      kind="rerank"
      path="/rerank"
      choice={choice}
      body={{ query: query.value, documents }}
      summary={query.value}
      isReady={query.value.trim() !== '' && documents.length > 0}
      verb="Rank"
      isRunningText="Ranking…"
      emptyTitle="The texts in order of relevance"
      emptyText="The model compares each text with the query. Each search is charged."
      read={async (response): Promise<readonly Ranked[]> => {
        const { results } = (await response.json()) as RerankResponse; // documented
        return results.map(({ index, relevance_score: score }) => {
          return { text: documents[index] ?? '', score };
        });
      }}
      restore={(earlier) => {
        query.value = textIn(earlier, 'query');
        lines.value = (earlier['documents'] as readonly string[]).join('\n'); // stored by this tab
      }}
      show={(ranked) => (
        <ol class="texts" aria-label="Ranking">
          {ranked.map(({ text, score }, at) => (
            <li key={at}>
              <span class="text">{text}</span> <span class="soft num">{score.toFixed(3)}</span>
            </li>
          ))}
        </ol>
      )}
      fields={
        <>
          <TextField
            label="Query"
            required
            value={query.value}
            onInput={(value) => (query.value = value)}
          />
          <TextArea
            label="Texts, one per line"
            hint={`${documents.length} texts`}
            rows={8}
            value={lines.value}
            onInput={(value) => (lines.value = value)}
          />
        </>
      }
    />
  );
}
