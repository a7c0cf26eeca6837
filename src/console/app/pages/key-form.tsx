/** What a key may do and spend, as a form for a new key and for one that is there. */
import { useState } from 'preact/hooks';
import { useModels } from '../lookups.ts';
import { AmountField, Refusal, Select, TextField, problemOf, useAction } from '../parts/form.tsx';
import type { ApiKey } from '../shapes.ts';

interface KeyFormProps {
  readonly given?: ApiKey | undefined;
  /** Gets the body of the request; a refusal is shown in the form. */
  readonly save: (body: Readonly<Record<string, unknown>>) => Promise<void>;
}

type Kind = ApiKey['apiKeyType'];

const KINDS: readonly (readonly [Kind, string])[] = [
  ['INFERENCE', 'INFERENCE: calls models'],
  ['ADMIN', 'ADMIN: also manages keys and reads the account'],
];
const PERIOD_CHOICES: readonly (readonly [string, string])[] = [
  ['EPOCH', 'each day, UTC'],
  ['WEEK', 'each Monday, UTC'],
  ['MONTH', 'each month, UTC'],
  ['LIFETIME', 'never'],
];
const PRIVACY_CHOICES: readonly (readonly [string, string])[] = [
  ['ALL', 'Every model'],
  ['PRIVATE_TEXT', 'Text models must be private'],
  ['PRIVATE_ONLY', 'Private models only'],
];

/** Empty is no cap. */
function amountOf(text: string): number | null {
  return text.trim() === '' ? null : Number(text);
}

export function KeyForm({ given, save }: KeyFormProps) {
  const action = useAction();
  const [kind, setKind] = useState<Kind>('INFERENCE');
  const [description, setDescription] = useState(given?.description ?? '');
  const [usd, setUsd] = useState(String(given?.consumptionLimits.usd ?? ''));
  const [diem, setDiem] = useState(String(given?.consumptionLimits.diem ?? ''));
  const [period, setPeriod] = useState<string>(given?.limitPeriod ?? 'MONTH');
  const [privacy, setPrivacy] = useState<string>(given?.modelPrivacy ?? 'ALL');
  const [expires, setExpires] = useState(given?.expiresAt?.slice(0, 10) ?? '');
  const [models, setModels] = useState<readonly string[]>(given?.models ?? []);
  const problem = (field: string): string | undefined => problemOf(action.error, field);
  const submit = (): void => {
    const isSameDay = expires === (given?.expiresAt?.slice(0, 10) ?? '');
    const body = {
      ...(given === undefined ? { apiKeyType: kind } : {}),
      description: description.trim(),
      consumptionLimit: { usd: amountOf(usd), diem: amountOf(diem) },
      limitPeriod: period,
      modelPrivacy: privacy,
      models: models.length === 0 ? null : models,
      // The time of a key that expires within a day stays as it is.
      ...(given !== undefined && isSameDay ? {} : { expiresAt: expires }),
    };
    void action.run(() => save(body));
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {given === undefined && (
        <Select
          label="Kind"
          value={kind}
          options={KINDS}
          onChange={(one) => setKind(one as Kind)}
        />
      )}
      <TextField
        label="Description"
        hint="What uses it, for you to know."
        problem={problem('description')}
        required
        maxLength={64}
        value={description}
        onInput={setDescription}
      />
      <div class="fields-row">
        <AmountField
          label="Cap in USD"
          hint="Empty: no cap."
          problem={problem('consumptionLimit')}
          value={usd}
          onInput={setUsd}
        />
        <AmountField
          label="Cap in daily credit"
          hint="Empty: no cap."
          value={diem}
          onInput={setDiem}
        />
        <Select
          label="Caps start again"
          value={period}
          options={PERIOD_CHOICES}
          onChange={setPeriod}
        />
      </div>
      <div class="fields-row">
        <TextField
          label="Expires"
          hint="At 00:00 UTC of that day; empty: never."
          problem={problem('expiresAt')}
          type="date"
          value={expires}
          onInput={setExpires}
        />
        <Select label="Privacy" value={privacy} options={PRIVACY_CHOICES} onChange={setPrivacy} />
      </div>
      <ModelChoice chosen={models} choose={setModels} />
      <Refusal error={action.error} />
      <p class="row end">
        <button type="submit" class="primary" disabled={action.isRunning}>
          {given === undefined ? 'Create' : 'Save'}
        </button>
      </p>
    </form>
  );
}

function ModelChoice({
  chosen,
  choose,
}: {
  chosen: readonly string[];
  choose: (ids: readonly string[]) => void;
}) {
  const models = useModels();
  const ids = [...new Set([...models.map(({ id }) => id), ...chosen])];
  return (
    <details class="choice" open={chosen.length > 0}>
      <summary>Models: {chosen.length === 0 ? 'every one' : `${chosen.length} chosen`}</summary>
      <div class="checks">
        {ids.map((id) => (
          <label key={id} class="check">
            <input
              type="checkbox"
              checked={chosen.includes(id)}
              onChange={(event) =>
                choose(
                  event.currentTarget.checked
                    ? [...chosen, id]
                    : chosen.filter((one) => one !== id),
                )
              }
            />
            <span class="text">{id}</span>
          </label>
        ))}
      </div>
    </details>
  );
}
