/** Fields with their label, their hint and what is wrong with them, bound together for everybody. */
import type { ComponentChildren, JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { ApiError } from '../api.ts';
import { announce } from './announce.tsx';

interface FieldProps {
  readonly label: string;
  readonly hint?: ComponentChildren;
  readonly problem?: string | undefined;
  readonly children: (attributes: { id: string; 'aria-describedby': string }) => JSX.Element;
}

export function Field({ label, hint, problem, children }: FieldProps) {
  const id = useId();
  const about = `${id}-about`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, 'aria-describedby': about })}
      <p id={about} class={problem === undefined ? 'hint' : 'hint bad'}>
        {problem ?? hint}
      </p>
    </div>
  );
}

interface TextFieldProps extends Pick<FieldProps, 'label' | 'hint' | 'problem'> {
  readonly value: string;
  readonly onInput: (value: string) => void;
  readonly type?: 'text' | 'date' | 'number';
  readonly required?: boolean;
  readonly maxLength?: number;
  readonly min?: string;
  readonly step?: string;
  readonly inputMode?: 'decimal';
}

/** One line of text, or what a browser has a picker for. */
export function TextField({
  label,
  hint,
  problem,
  onInput,
  type = 'text',
  ...input
}: TextFieldProps) {
  // One of the kinds of a field, whose types tell them apart.
  const kind = type as 'text';
  return (
    <Field label={label} hint={hint} problem={problem}>
      {(attributes) => (
        <input
          {...attributes}
          {...input}
          type={kind}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

/** An amount of money or credit, none of it negative, with as many decimals as it has. */
export function AmountField(props: TextFieldProps) {
  return <TextField {...props} type="number" min="0" step="any" inputMode="decimal" />;
}

interface SelectProps {
  readonly label: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, label: string])[];
  readonly onChange: (value: string) => void;
  readonly isCompact?: boolean;
}

/** A choice; compact ones stand in a row of filters. */
export function Select({ label, value, options, onChange, isCompact = false }: SelectProps) {
  const id = useId();
  return (
    <div class={isCompact ? 'filter' : 'field'}>
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([one, name]) => (
          <option key={one} value={one}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

export interface Action {
  readonly isRunning: boolean;
  readonly error: ApiError | undefined;
  run(work: () => Promise<unknown>): Promise<boolean>;
  clear(): void;
}

/** One thing that a button does: not twice at once, and its refusal is kept. */
export function useAction(): Action {
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState<ApiError>();
  return {
    isRunning,
    error,
    clear: () => setError(undefined),
    run: async (work) => {
      if (isRunning) return false;
      setRunning(true);
      setError(undefined);
      try {
        await work();
        return true;
      } catch (thrown) {
        const refusal = ApiError.of(thrown);
        setError(refusal);
        announce(refusal.message);
        return false;
      } finally {
        setRunning(false);
      }
    },
  };
}

/** What was refused, above the button that asked. */
export function Refusal({ error }: { error: ApiError | undefined }) {
  if (error === undefined) return null;
  return (
    <p class="refusal" role="alert">
      {error.message}
    </p>
  );
}

/** What is wrong with one field, by the server's words. */
export function problemOf(error: ApiError | undefined, field: string): string | undefined {
  return error?.issues.find((issue) => issue.path[0] === field)?.message;
}
