// Batch-softmax loss of a small batch, cell by cell: a copy of bsc_core/losses/explain.py, compared with it by a browser
// test. Matrices are arrays of rows; masks are arrays of rows of booleans.

const SMALLEST_RANGE = 1e-6;
const RELATIVE_TIE = 1e-6, ABSOLUTE_TIE = 1e-12;

const matrix = (height, width, value) =>
  Array.from({ length: height }, (_, i) => Array.from({ length: width }, (_, j) => value(i, j)));
const transpose = (rows) => matrix(rows.length ? rows[0].length : 0, rows.length, (i, j) => rows[j][i]);
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (left, right) => left.reduce((sum, value, d) => sum + value * right[d], 0);
// The index of the largest value; of values that differ by rounding alone, the lowest index.
function firstLargest(values) {
  const largest = Math.max(...values);
  return values.findIndex((value) => value >= largest - RELATIVE_TIE * Math.abs(largest) - ABSOLUTE_TIE);
}

const inverse = (size, smallest) => (size > smallest ? 1 / size : 0);

function normalize(vectors, normalization) {
  if (normalization === "none") return vectors;
  if (normalization === "l2") {
    return vectors.map((row) => {
      const scale = inverse(Math.sqrt(dot(row, row)), 0);
      return row.map((value) => value * scale);
    });
  }
  const smallest = SMALLEST_RANGE * Math.max(...vectors.flat().map(Math.abs));
  const columns = transpose(vectors).map((column) => {
    if (normalization === "l2_columns") {
      const scale = inverse(Math.sqrt(dot(column, column)), smallest);
      return column.map((value) => value * scale);
    }
    const lowest = Math.min(...column);
    const scale = inverse(Math.max(...column) - lowest, smallest);
    const shift = normalization === "minmax_columns" ? lowest : 0;
    return column.map((value) => (value - shift) * scale);
  });
  return transpose(columns);
}

// Masks of the positives and the candidates of each anchor, from the text ids of both sides.
function masks(settings, positive, anchorIds, candidateIds) {
  const pairs = positive.length;
  const isIncluded = positive.map((value) => settings.labeled_negatives || value);
  const isFirst = candidateIds.map((text, j) => candidateIds.findIndex((other, k) => other === text && isIncluded[k]) === j);
  const isSame = (i, j) => candidateIds[i] === candidateIds[j];
  const positives = matrix(pairs, pairs, (i, j) => {
    if (!positive[i]) return false;
    if (settings.duplicates !== "multi_positive") return i === j;
    return isSame(i, j) || (anchorIds[i] === anchorIds[j] && positive[j]);
  });
  const candidates = matrix(pairs, pairs, (i, j) => {
    if (positives[i][j]) return true;
    return settings.duplicates === "merge" ? isFirst[j] && !isSame(i, j) : isIncluded[j];
  });
  return { positives, candidates };
}

// One direction: the softmax and loss of each anchor, and the gradient of the summed losses by the logits.
function direction(logits, { positives, candidates }) {
  const probability = [], push = [], losses = [];
  logits.forEach((row, i) => {
    const allowed = row.filter((_, j) => candidates[i][j]);
    const highest = Math.max(...allowed);
    const exponentials = row.map((value, j) => (candidates[i][j] ? Math.exp(value - highest) : 0));
    const sum = total(exponentials);
    const p = exponentials.map((value) => (sum > 0 ? value / sum : 0));
    const count = positives[i].filter(Boolean).length;
    const target = positives[i].map((value) => (value ? 1 / count : 0));
    const positiveLogit = total(row.map((value, j) => (target[j] ? value * target[j] : 0)));
    probability.push(p);
    push.push(p.map((value, j) => (count ? value - target[j] : 0)));
    losses.push(count ? Math.log(sum) + highest - positiveLogit : 0);
  });
  return { probability, push, losses, positives, candidates };
}

function effectiveNegatives({ probability, positives, candidates }) {
  const counts = [];
  probability.forEach((row, i) => {
    const negatives = row.filter((_, j) => candidates[i][j] && !positives[i][j]);
    const sum = total(negatives);
    if (!positives[i].some(Boolean) || !(sum > 0)) return;
    counts.push(Math.exp(-total(negatives.map((p) => (p > 0 ? (p / sum) * Math.log(p / sum) : 0)))));
  });
  return counts.length ? total(counts) / counts.length : 0;
}

// Similarities and masks: all that the temperature does not change, kept for each batch by the other settings.
const prepared = new WeakMap();
function prepare(batch, settings) {
  const key = JSON.stringify({ ...settings, temperature: 0 });
  if (!prepared.has(batch)) prepared.set(batch, {});
  return (prepared.get(batch)[key] ??= compute());

  function compute() {
    const left = normalize(batch.queries, settings.normalization);
    const right = normalize(batch.documents, settings.normalization);
    const positive = batch.labels.map((label) => label > settings.threshold);
    return {
      similarity: matrix(left.length, right.length, (i, j) => dot(left[i], right[j])), positive,
      rowMasks: masks(settings, positive, batch.query_ids, batch.document_ids),
      columnMasks: settings.symmetric ? masks(settings, positive, batch.document_ids, batch.query_ids) : null,
    };
  }
}

// All values of the panels. batch: queries, documents, labels, query_ids, document_ids; settings: of the lab.
function explainBatch(batch, settings) {
  const pairs = batch.queries.length;
  const { similarity, positive, rowMasks, columnMasks } = prepare(batch, settings);
  const logits = similarity.map((row) => row.map((value) => value / settings.temperature));
  const rows = direction(logits, rowMasks);
  const columns = columnMasks ? direction(transpose(logits), columnMasks) : null;
  const all = settings.average === "batch" && settings.labeled_negatives;
  const count = all ? pairs : Math.max(1, positive.filter(Boolean).length);
  const weight = columns && settings.reduction === "mean" ? 0.5 : 1;
  const gradient = matrix(pairs, pairs, (i, j) => {
    const push = rows.push[i][j] + (columns ? columns.push[j][i] : 0);
    return (push / count) * weight / settings.temperature;
  });
  const first = total(rows.losses) / count;
  const second = columns ? total(columns.losses) / count : null;
  const anchorLosses = rows.losses.map((loss, i) => (rows.positives[i].some(Boolean) ? loss : -Infinity));
  return {
    similarity, logits, gradient, rows, columns, positive, count, weight, first, second,
    total: weight * (first + (second ?? 0)),
    gradientSum: total(gradient.flat().map(Math.abs)),
    effective: effectiveNegatives(rows),
    hardest: positive.some(Boolean) ? firstLargest(anchorLosses) : -1,
  };
}
