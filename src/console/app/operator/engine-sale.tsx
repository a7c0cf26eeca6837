/** The models of a tested engine: choice, prices and markup, and the change of the file. */
import { useState } from 'preact/hooks';
import { call } from '../api.ts';
import { countText, usdText } from '../format.ts';
import { CodeBlock } from '../parts/code.tsx';
import { ErrorMessage, TextField, useAction } from '../parts/form.tsx';
import { Notice } from '../parts/loaded.tsx';
import type { ChangedConfig, TestedEngine } from '../shapes.ts';
import type { Engine } from './engine-form.tsx';

export type Offered = TestedEngine['models'][number];

const MANY = 12;
const SHOWN = 60;

interface SaleProps {
  readonly engine: Engine;
  readonly tested: TestedEngine;
  readonly digest: string;
  readonly saved: (sold: readonly Offered[]) => void;
}

export function Sale({ engine, tested, digest, saved }: SaleProps) {
  const [chosen, setChosen] = useState<ReadonlyMap<string, Offered>>(new Map());
  const [markupPercent, setMarkup] = useState('20');
  const [wanted, setWanted] = useState('');
  const [tried, setTried] = useState<ChangedConfig>();
  const action = useAction();
  const matching = tested.models.filter(({ id }) =>
    id.toLowerCase().includes(wanted.toLowerCase()),
  );
  const choose = (models: ReadonlyMap<string, Offered>): void => {
    setChosen(models);
    setTried(undefined);
  };
  const send = (isTrial: boolean): void => {
    void action.run(async () => {
      const models = [...chosen.values()].map(requestOf);
      const body = { ...engine, models, markupPercent: markupPercent.trim(), digest, isTrial };
      const path = '/admin/engine-setup';
      const result = await call<ChangedConfig>(path, { method: 'POST', body });
      setTried(result);
      if (!isTrial && result.ok) saved([...chosen.values()]);
    });
  };
  return (
    <section class="stack">
      <h3>Models to sell</h3>
      {tested.models.length > MANY && (
        <TextField label="Find a model" value={wanted} onInput={setWanted} />
      )}
      <fieldset class="settings">
        <legend class="unseen">Models to sell</legend>
        {matching.slice(0, SHOWN).map((model) => (
          <ModelChoice
            key={model.id}
            model={model}
            chosen={chosen.get(model.id)}
            change={(next) => choose(withChoice(chosen, model.id, next))}
          />
        ))}
        {matching.length > SHOWN && (
          <p class="hint">
            {countText(matching.length - SHOWN)} more models. Find them by their name.
          </p>
        )}
      </fieldset>
      <TextField
        label="Markup in percent"
        hint="Added to the prices of the supplier."
        inputMode="decimal"
        value={markupPercent}
        onInput={(text) => {
          setMarkup(text);
          setTried(undefined);
        }}
      />
      {tried?.ok === false && (
        <Notice tone="bad">
          <ul>
            {tried.problems.map((problem) => (
              <li key={problem} class="text">
                {problem}
              </li>
            ))}
          </ul>
        </Notice>
      )}
      {tried?.ok === true && <CodeBlock title="Change of farebox.yaml" text={tried.diff} />}
      <ErrorMessage error={action.error} />
      <p class="row end">
        <button type="button" disabled={action.isRunning} onClick={() => send(true)}>
          Show the change
        </button>
        <button
          type="button"
          class="primary"
          disabled={action.isRunning || tried?.ok !== true}
          onClick={() => send(false)}
        >
          Save
        </button>
      </p>
    </section>
  );
}

function requestOf(offered: Offered): Omit<Offered, 'isSellable'> {
  const { isSellable: _shown, ...model } = offered;
  return model;
}

function withChoice(
  chosen: ReadonlyMap<string, Offered>,
  id: string,
  model: Offered | undefined,
): ReadonlyMap<string, Offered> {
  const next = new Map(chosen);
  if (model === undefined) next.delete(id);
  else next.set(id, model);
  return next;
}

interface ModelChoiceProps {
  readonly model: Offered;
  readonly chosen: Offered | undefined;
  readonly change: (model: Offered | undefined) => void;
}

/** A model with its price, or with fields for what the price list lacks. */
function ModelChoice({ model, chosen, change }: ModelChoiceProps) {
  const { id, cost, isSellable } = model;
  const set = (facts: Offered['facts'], price: Offered['cost']): void => {
    if (chosen !== undefined)
      change({
        ...chosen,
        facts: { ...chosen.facts, ...facts },
        cost: { ...chosen.cost, ...price },
      });
  };
  return (
    <>
      <label class="check">
        <input
          type="checkbox"
          checked={chosen !== undefined}
          onChange={({ currentTarget }) => change(currentTarget.checked ? model : undefined)}
        />
        <span class="text">
          {id} <span class="soft">{isSellable ? priceText(cost) : 'no published price'}</span>
        </span>
      </label>
      {chosen !== undefined && !isSellable && (
        <div class="fields-row">
          <TextField
            label={`Context of ${id}`}
            hint="Tokens."
            inputMode="numeric"
            value={String(chosen.facts.context ?? '')}
            onInput={(text) => set({ context: Number(text) || undefined }, {})}
          />
          <TextField
            label={`Input price of ${id}`}
            hint="USD per million tokens."
            inputMode="decimal"
            value={chosen.cost?.input ?? ''}
            onInput={(text) => set({}, { input: text.trim() })}
          />
          <TextField
            label={`Output price of ${id}`}
            hint="USD per million tokens."
            inputMode="decimal"
            value={chosen.cost?.output ?? ''}
            onInput={(text) => set({}, { output: text.trim() })}
          />
        </div>
      )}
    </>
  );
}

function priceText(cost: Offered['cost']): string {
  const { input, output, perImage, perSecond, perMillionCharacters, perSearch } = cost ?? {};
  if (input !== undefined) {
    const prices = [input, ...(output === undefined ? [] : [output])];
    return `${prices.map((usd) => usdText(usd)).join(' / ')} per million tokens`;
  }
  const units = [
    [perImage, 'image'],
    [perSecond, 'second'],
    [perMillionCharacters, 'million characters'],
    [perSearch, 'search'],
  ] as const;
  const shown = units.flatMap(([usd, unit]) =>
    usd === undefined ? [] : [`${usdText(usd)} per ${unit}`],
  );
  return shown.join(', ');
}
